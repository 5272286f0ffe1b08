"""Which architectures: a line for each, by the library that has it.

Weights are random, so sizes are what they need to be for the architecture to show all its parts:
language models are cut to a few layers, vision models are mostly as published.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Settings = dict[str, Any]


class Entry(NamedTuple):
    """An architecture: its library, name there, family, settings, and what its inputs are."""

    library: str
    name: str
    family: str
    inputs: str
    settings: Settings


#: Those that are also compiled for symbolic batches and lengths, or heights and widths.
SYMBOLIC_NAMES = frozenset(
    "resnet18 resnet50 vgg11 squeezenet1_0 densenet121 mobilenet_v2 mobilenet_v3_small"
    " shufflenet_v2_x1_0 regnet_y_400mf efficientnet_b0 bert roberta electra distilbert mpnet"
    " gpt2 llama mistral qwen2 opt phi gpt_neox lstm_tagger gru_language_model dlrm deepfm din"
    " wavenet tcn m5 pointnet informer_like".split()
)


def _entries(library: str, family: str, inputs: str, names: str) -> list[Entry]:
    return [Entry(library, name, family, inputs, {}) for name in names.split()]


#: Sizes that most configurations of transformers know by these names.
_SMALL: Settings = {
    "vocab_size": 1000,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
}
_DECODER: Settings = {**_SMALL, "num_key_value_heads": 2, "use_cache": False, "pad_token_id": 0}
_GPT2: Settings = {
    "vocab_size": 1000,
    "n_embd": 128,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 128,
    "use_cache": False,
}
_SEQ2SEQ: Settings = {
    "vocab_size": 1000,
    "d_model": 128,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 256,
    "decoder_ffn_dim": 256,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
_T5: Settings = {
    "vocab_size": 1000,
    "d_model": 128,
    "d_kv": 32,
    "d_ff": 256,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "use_cache": False,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
}
_MOE: Settings = {**_DECODER, "num_experts": 4, "num_experts_per_tok": 2}
_SPEECH: Settings = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "conv_dim": (64, 64, 64),
    "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}


def _hf(family: str, inputs: str, settings: Settings, names: str, **more: Settings) -> list[Entry]:
    """Return entries of ``transformers``; ``more`` are settings of single ones, by name."""
    return [
        Entry("transformers", name, family, inputs, {**settings, **more.get(_word(name), {})})
        for name in names.split()
    ]


def _word(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")


ENTRIES: tuple[Entry, ...] = (
    *_entries(
        "torchvision",
        "image classification",
        "image",
        "alexnet vgg11 vgg16_bn resnet18 resnet50 resnext50_32x4d wide_resnet50_2 squeezenet1_0"
        " densenet121 inception_v3 googlenet shufflenet_v2_x1_0 mobilenet_v2 mobilenet_v3_small"
        " mobilenet_v3_large mnasnet1_0 efficientnet_b0 efficientnet_v2_s regnet_y_400mf"
        " regnet_x_400mf convnext_tiny vit_b_16 swin_t swin_v2_t maxvit_t",
    ),
    *_entries(
        "torchvision.segmentation",
        "segmentation",
        "image",
        "fcn_resnet50 deeplabv3_mobilenet_v3_large deeplabv3_resnet50 lraspp_mobilenet_v3_large",
    ),
    *_entries(
        "torchvision.video",
        "video",
        "clip",
        "r3d_18 mc3_18 r2plus1d_18 s3d mvit_v1_b mvit_v2_s swin3d_t",
    ),
    *_entries("torchvision.optical_flow", "optical flow", "image pair", "raft_small"),
    *_entries(
        "timm",
        "image classification",
        "image",
        "resnest14d res2net50_26w_4s seresnet50 skresnet18 ecaresnet26t gernet_s repvgg_a0 dla34"
        " dpn68 hrnet_w18_small xception41 inception_v4 nf_resnet26 cspresnet50 cspdarknet53"
        " ese_vovnet19b_dw ghostnet_100 tinynet_e hardcorenas_a lcnet_050 mobilenetv4_conv_small"
        " mobileone_s0 fastvit_t8 repvit_m1 efficientvit_b0 efficientvit_m0 efficientformer_l1"
        " efficientformerv2_s0 edgenext_xx_small convnextv2_atto convmixer_768_32 mixer_s32_224"
        " gmlp_s16_224 resmlp_12_224 deit_tiny_patch16_224 cait_xxs24_224 xcit_nano_12_p16_224"
        " tnt_s_patch16_224 twins_pcpvt_small coat_tiny crossvit_9_240 pit_ti_224 levit_128s"
        " visformer_tiny volo_d1_224 poolformer_s12 caformer_s18 maxvit_nano_rw_256"
        " coatnet_nano_rw_224 swinv2_cr_tiny_ns_224 pvt_v2_b0 mvitv2_tiny eva02_tiny_patch14_224"
        " davit_tiny focalnet_tiny_srf gcvit_xxtiny inception_next_tiny nest_tiny sequencer2d_s"
        " hiera_tiny_224 mambaout_femto starnet_s1 tiny_vit_5m_224 nextvit_small halonet26t"
        " lambda_resnet26t botnet26t_256 beit_base_patch16_224",
    ),
    *_hf(
        "text encoder",
        "text",
        _SMALL,
        "bert roberta albert electra deberta deberta-v2 mpnet xlm-roberta convbert squeezebert"
        " nystromformer mobilebert rembert roformer layoutlm modernbert ibert data2vec-text"
        " megatron-bert ernie fnet canine longformer esm luke",
        albert={"embedding_size": 64},
        electra={"embedding_size": 64},
        squeezebert={"embedding_size": 128},
        deberta={"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
        deberta_v2={"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
        mobilebert={"intra_bottleneck_size": 64, "embedding_size": 64, "true_hidden_size": 64},
        rembert={"input_embedding_size": 64, "output_embedding_size": 64},
        roformer={"embedding_size": 128},
        modernbert={"pad_token_id": 0, "global_attn_every_n_layers": 2},
        longformer={"attention_window": [16, 16]},
        esm={"pad_token_id": 1, "mask_token_id": 2},
        luke={"entity_vocab_size": 100, "entity_emb_size": 32},
    ),
    *_hf(
        "text encoder",
        "text",
        {"vocab_size": 1000, "dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 256},
        "distilbert",
    ),
    *_hf(
        "text encoder",
        "text",
        {"vocab_size": 1000, "d_model": 128, "n_layer": 2, "n_head": 4, "d_inner": 256},
        "xlnet",
    ),
    *_hf(
        "text encoder",
        "text",
        {"vocab_size": 1000, "emb_dim": 128, "n_layers": 2, "n_heads": 4},
        "xlm flaubert",
    ),
    *_hf(
        "language model",
        "text",
        _GPT2,
        "gpt2 gptj codegen openai-gpt",
        gptj={"rotary_dim": 16},
        codegen={"rotary_dim": 16},
    ),
    *_hf(
        "language model",
        "text",
        _DECODER,
        "llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 stablelm olmo olmo2 cohere"
        " granite starcoder2 smollm3 glm glm4 helium nemotron persimmon gpt_neox opt xglm biogpt"
        " ernie4_5 exaone4 arcee seed_oss falcon bloom",
        gemma={"head_dim": 32},
        gemma2={"head_dim": 32},
        gemma3_text={"head_dim": 32},
        qwen3={"head_dim": 32},
        glm={"head_dim": 32},
        glm4={"head_dim": 32},
        helium={"head_dim": 32},
        olmo2={"eos_token_id": 1},
        smollm3={"eos_token_id": 1, "bos_token_id": 2},
        opt={"ffn_dim": 256, "word_embed_proj_dim": 128},
        xglm={"d_model": 128, "num_layers": 2, "attention_heads": 4, "ffn_dim": 256},
        bloom={"n_layer": 2, "n_head": 4},
    ),
    *_hf(
        "language model",
        "text",
        {**_SMALL, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
        "gpt_neo",
    ),
    *_hf(
        "language model",
        "text",
        {"vocab_size": 1000, "d_model": 128, "n_layers": 2, "n_heads": 4, "use_cache": False},
        "mpt",
    ),
    *_hf(
        "mixture of experts",
        "text",
        _MOE,
        "mixtral qwen2_moe qwen3_moe olmoe granitemoe",
        mixtral={"num_local_experts": 4},
        qwen2_moe={"moe_intermediate_size": 64, "shared_expert_intermediate_size": 64},
        qwen3_moe={"moe_intermediate_size": 64, "head_dim": 32},
        granitemoe={"num_local_experts": 4},
    ),
    *_hf(
        "state space and recurrent language model",
        "text",
        {**_SMALL, "use_cache": False, "pad_token_id": 0},
        "mamba mamba2 falcon_mamba rwkv",
        mamba={"state_size": 16},
        falcon_mamba={"state_size": 16},
        mamba2={"num_heads": 8, "head_dim": 32, "state_size": 16, "n_groups": 1, "chunk_size": 32},
        rwkv={"attention_hidden_size": 128, "context_length": 128},
    ),
    *_hf(
        "encoder and decoder",
        "text pair",
        _SEQ2SEQ,
        "bart mbart pegasus marian blenderbot plbart m2m_100 led",
        led={"attention_window": [16, 16]},
    ),
    *_hf("encoder and decoder", "text pair", _T5, "t5 mt5 umt5 longt5 switch_transformers"),
    *_hf(
        "image classification",
        "image",
        {},
        "convnext convnextv2 swin swinv2 segformer mobilevit mobilevitv2 poolformer levit cvt pvt"
        " pvt_v2 regnet resnet focalnet efficientnet bit mobilenet_v1 mobilenet_v2 hiera glpn"
        " textnet",
    ),
    *_hf(
        "vision transformer",
        "image",
        {
            "hidden_size": 192,
            "num_hidden_layers": 3,
            "num_attention_heads": 3,
            "intermediate_size": 384,
            "image_size": 224,
            "patch_size": 16,
        },
        "vit deit beit dinov2 vit_msn data2vec-vision ijepa siglip_vision_model clip_vision_model",
    ),
    *_hf(
        "detection",
        "image",
        {
            "hidden_size": 192,
            "num_hidden_layers": 3,
            "num_attention_heads": 3,
            "image_size": [224, 224],
        },
        "yolos",
    ),
    *_hf(
        "image and text",
        "image and text",
        {},
        "clip",
        clip={
            "text_config": {**_SMALL, "max_position_embeddings": 64},
            "vision_config": {
                "hidden_size": 192,
                "num_hidden_layers": 2,
                "num_attention_heads": 3,
                "intermediate_size": 384,
                "patch_size": 16,
            },
        },
    ),
    *_hf(
        "audio",
        "waveform",
        _SPEECH,
        "wav2vec2 hubert wavlm unispeech sew data2vec-audio",
        wavlm={"num_buckets": 32},
        sew={"squeeze_factor": 2},
    ),
    *_hf(
        "audio",
        "spectrogram",
        {
            "hidden_size": 192,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "intermediate_size": 384,
        },
        "audio-spectrogram-transformer",
    ),
    *_hf("audio", "mel and text", {**_SEQ2SEQ, "max_source_positions": 150}, "whisper"),
    *_hf(
        "time series",
        "series",
        {"context_length": 96, "patch_length": 16, "num_input_channels": 7, "d_model": 64},
        "patchtst patchtsmixer",
    ),
    Entry(
        "diffusers",
        "UNet2DModel",
        "diffusion",
        "latent and step",
        {
            "sample_size": 32,
            "in_channels": 4,
            "out_channels": 4,
            "block_out_channels": (64, 128),
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
            "layers_per_block": 1,
        },
    ),
    Entry(
        "diffusers",
        "UNet2DConditionModel",
        "diffusion",
        "latent, step and text states",
        {
            "sample_size": 32,
            "block_out_channels": (64, 128),
            "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
            "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
            "cross_attention_dim": 128,
            "attention_head_dim": 8,
            "layers_per_block": 1,
        },
    ),
    Entry(
        "diffusers",
        "AutoencoderKL",
        "diffusion",
        "small image",
        {
            "block_out_channels": (32, 64),
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
            "latent_channels": 4,
        },
    ),
    Entry(
        "diffusers",
        "AutoencoderTiny",
        "diffusion",
        "small image",
        {"encoder_block_out_channels": (32,) * 4, "decoder_block_out_channels": (32,) * 4},
    ),
    Entry(
        "diffusers",
        "DiTTransformer2DModel",
        "diffusion",
        "latent, step and class",
        {"num_attention_heads": 4, "attention_head_dim": 32, "num_layers": 2, "sample_size": 32},
    ),
    Entry(
        "diffusers",
        "FluxTransformer2DModel",
        "diffusion",
        "packed latent",
        {
            "num_layers": 1,
            "num_single_layers": 2,
            "attention_head_dim": 32,
            "num_attention_heads": 4,
            "joint_attention_dim": 128,
            "pooled_projection_dim": 64,
            "axes_dims_rope": (8, 12, 12),
            "in_channels": 16,
        },
    ),
    Entry(
        "diffusers",
        "SD3Transformer2DModel",
        "diffusion",
        "latent, text and pooled",
        {
            "sample_size": 32,
            "num_layers": 2,
            "attention_head_dim": 32,
            "num_attention_heads": 4,
            "joint_attention_dim": 128,
            "caption_projection_dim": 128,
            "pooled_projection_dim": 64,
            "in_channels": 4,
            "out_channels": 4,
        },
    ),
    *_entries("handmade", "recurrent", "own", "lstm_tagger gru_language_model seq2seq_attention"),
    *_entries(
        "handmade", "recommender", "own", "dlrm neural_collaborative_filtering deepfm dcn din"
    ),
    *_entries("handmade", "graph", "own", "gcn graphsage gat gin"),
    *_entries("handmade", "audio", "own", "conv_tasnet m5 crnn wavenet"),
    *_entries("handmade", "time series", "own", "tcn nbeats informer_like"),
    *_entries("handmade", "classic", "own", "mlp lenet unet vae dcgan_generator pointnet"),
)
